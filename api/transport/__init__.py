"""What happens to every request and answer before and after its route."""
