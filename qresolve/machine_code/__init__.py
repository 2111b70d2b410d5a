"""What is inside binaries for the GPU: ELF files, fatbin containers, cubins and their instructions. Pure readers."""
