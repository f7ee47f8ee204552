"""Many runs of one config: a grid or a search, on any number of machines that share a folder or a database."""
