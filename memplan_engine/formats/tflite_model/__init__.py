"""TensorFlow Lite models: read as graphs, and written with an offline plan."""
