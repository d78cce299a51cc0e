// Package database makes no promise: it is for the tests of this module alone. It starts SQLite and PostgreSQL, which judge the
// conditions that package filter makes: a row must be selected exactly if the decision about it allows. The question about a row is
// made here, from what a driver reads, and by nothing that makes conditions.
package database
