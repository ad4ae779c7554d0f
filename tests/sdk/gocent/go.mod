module ringmain.test/gocent

go 1.21

require github.com/centrifugal/gocent/v3 v3.3.0
