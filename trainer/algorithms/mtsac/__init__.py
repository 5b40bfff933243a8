"""Multi-task soft actor-critic, with derivatives written by hand: `algorithm` is what the training sees."""
