"""Methods beside TIM, one file each."""
