"""The example that `holdfast demo` runs."""
