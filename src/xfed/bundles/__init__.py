"""From a finished run to a bundle for devices, and the proof that the bundle is right."""
