// Package strangers makes no promise: it is for the tests of this module alone. It has only a test, which builds and runs
// the examples of public packages in another module, as somebody else's program would. There the compiler refuses every
// import of an internal package.
package strangers
