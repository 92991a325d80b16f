"""What the clients hold: data sets, partitions, and each client's train, calibration and test views."""
