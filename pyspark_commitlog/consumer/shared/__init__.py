"""Views, decoded frames and watcher, shared by a process' consumers."""
