"""Mathematics and base classes that several methods share; nothing here is a method."""
