"""What a release is made of: the sdist, one wheel a platform, and what each of them says."""
