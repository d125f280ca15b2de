"""The sink: staging in tasks, commits in the driver."""
