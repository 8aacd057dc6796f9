"""The corpus on disk: where the data lie, how they are read, validated, selected and linted."""
