"""What a training does, on one page in a browser: slots, jobs, curves, who helps. It reads, and changes nothing."""
