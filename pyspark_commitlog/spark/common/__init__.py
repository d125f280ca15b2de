"""What source and sink share: options as given, how a root is opened, what a task does first."""
