"""Parts that commands share: arguments, output, streams."""
