"""What a training is made of, as its settings: read on a login node, with pydantic alone."""
