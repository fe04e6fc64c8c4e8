"""What becomes due with time; the decisions are pure, the loops thin."""
