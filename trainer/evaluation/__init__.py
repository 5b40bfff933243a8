"""Evaluations: what is played and how it is scored, the process that makes one, their queue beside a training."""
