"""The contract release: pipelines, sensitivity, decision, failures, rollouts, and a store that recovers."""
