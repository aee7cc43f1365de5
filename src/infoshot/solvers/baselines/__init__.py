"""Methods other than TIM, one module each."""
