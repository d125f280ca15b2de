"""Small helpers that tests tell their stories with. None of it is collected as a test."""
