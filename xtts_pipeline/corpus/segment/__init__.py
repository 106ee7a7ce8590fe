"""Cut long recordings into clips with their texts."""
