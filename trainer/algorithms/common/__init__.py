"""What several algorithms share: acting and learning by family, their tensors in a checkpoint, measures of nets."""
