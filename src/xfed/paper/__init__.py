"""The paper's tables and figures as named experiments, with the published values beside ours."""
