"""Features to the inputs of encoders, in the graph."""
