"""What a training is saved as, and where it goes on from."""
