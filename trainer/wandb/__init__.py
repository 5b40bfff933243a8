"""Weights & Biases: what of a slot goes there and where it goes; `trainer.training.features.wandb` sends it live."""
