"""What makes a release: the distributions, their checks, the hashes of what they need, and a list of it."""
