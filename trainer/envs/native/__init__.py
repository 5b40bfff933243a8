"""What every stepper in C shares: how it is built, called and checked, and the headers that it includes."""
