"""What enters a training from outside: experience of other machines and slots, and what other slots have learned."""
