"""The list of buffers that the tests of the command line find in their folder."""

#   steps   0   1   2   3   4     live: 100, 150, 150, 170, 120
#   a (100) ├───────────┤         The optimum is 170, the bytes live at step 3: c and a at the bottom,
#   b  (50)     ├───────────┤     b above c.
#   c (120)             ├───────┤
BUFFERS = "id,lower,upper,size\na,0,3,100\nb,1,4,50\nc,3,5,120\n"
