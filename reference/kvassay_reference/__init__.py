"""The reference: the text of the specification as Array API code and plain state machines."""
