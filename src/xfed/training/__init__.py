"""The one local training loop, the objectives it minimises, and distillation."""
