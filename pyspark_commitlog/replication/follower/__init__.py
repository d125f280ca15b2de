"""A follower's side: fetching, mending, catching up."""
