"""From a trained run to answers: policies chosen within a budget or a risk, and networks that really skip."""
