"""The hands: steps that touch the outside world."""
