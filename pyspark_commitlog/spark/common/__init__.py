"""Parts that source and sink share: options, roots, the start of a task."""
