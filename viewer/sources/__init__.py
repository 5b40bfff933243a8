"""Where a page's facts come from: run folders, and a laptop's mirror."""
