"""What the driver costs per trial, from one server to hundreds and from one trial to ten thousand."""
