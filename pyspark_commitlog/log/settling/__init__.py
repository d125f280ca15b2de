"""What settlers have in common, whether they append to segments or put segment objects."""
