package engine

import "sync"

// Room is memory that one call borrows: for its inquiry, and for the first question and verdict of that. Without it they
// would be a sixth of what a decision over HTTP allocates.
type Room struct {
	Inquiry  Inquiry
	Verdict  Verdict
	question Question
	overlay  Overlay
	taken    bool // by the first question
}

var rooms = sync.Pool{New: func() any { return new(Room) }}

// Borrow returns room with an empty inquiry and an empty verdict. They hold until [Room.Return], a decision for good.
func Borrow() *Room {
	r := rooms.Get().(*Room)
	r.Inquiry.keeps.room = r
	return r
}

// Return gives the room back, empty.
func (r *Room) Return() {
	*r = Room{}
	rooms.Put(r)
}

// newQuestion returns an empty question, with an overlay of entities if there is room for one.
func (in *Inquiry) newQuestion() *Question {
	r := in.keeps.room
	if r == nil || r.taken {
		return new(Question)
	}
	r.taken = true
	r.question.Entities = &r.overlay
	return &r.question
}
