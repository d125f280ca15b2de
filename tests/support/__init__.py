"""Small helpers that tests tell their stories with. Nothing here asserts."""
