"""What processes do for orders beside their steps."""
