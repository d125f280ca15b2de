"""What checks a topic's files, and gives up what is lost."""
