package visible

// lookAlikes are characters that look like one of ASCII, or like one that is written beside it, in one script or another.
// Those that Unicode counts as forms of an ASCII letter (fullwidth, mathematical, circled, superscript) are not here:
// normalization knows them.
var lookAlikes = map[rune]string{
	'a': "ɑαа⍺ᴀꭺ", 'b': "ƄЬᏏᑲᖯʙьꮟ", 'c': "сϲᴄⲥꮯ𐐽", 'd': "ԁᏧᑯᴅꓒꮷ", 'e': "еҽ℮ꬲᴇєꭼ", 'f': "ꞙꬵẝքꜰƒ",
	'g': "ɡᶃƍցɢԍ", 'h': "һհᏂʜꮒн", 'i': "іıιɩɪꙇᎥ⍳ꭵἰ", 'j': "јϳᴊյ", 'k': "кκᴋⲕĸꮶ",
	'l': "ӏǀ∣ⵏꓲⲒ𐊊𐌉ᛁ\u07ca\u0627\u05d5\u0661۱\u05dfΙІӀ⏽ʟꮮ│｜ⅼƖ", 'm': "мᴍꮇϻ", 'n': "ոռɴпηꞃ",
	'o': "οоօσᴏᴑ๐໐০੦૦୦௦౦೦൦०០၀ዐ\u07cb\u05e1ⲟ𐐬ჿ\u0665۵\u06c1\u0647〇ⵔഠටဝ", 'p': "рρϱⲣ⍴ᴘꮲþ", 'q': "ԛգզ", 'r': "гᴦⲅꭇꭈꮁʀꭱ",
	's': "ѕƽꜱꮪ𐑈ꮥ", 't': "тτᴛꭲƭ", 'u': "υսᴜʋꞟꭎꭒ𐓶", 'v': "νѵᴠ\u05d8∨⋁ꮩ", 'w': "ѡԝաɯᴡꮃωшꮤ",
	'x': "хᕁᕽ×᙮⤫⤬⨯χⲭ", 'y': "уүγʏყɣᶌỿꭚꮍꭹ", 'z': "ᴢꮓ",

	'A': "ΑАᎪᗅꓮ𐊠Ⲁ", 'B': "ΒВᏴᗷꓐ𐊂𐊡𐌁Ⲃ", 'C': "СϹᏟꓚⲤ𐊢𐌂𐐕Ⅽ", 'D': "ᎠᗞᗪꓓÐĐ", 'E': "ΕЕᎬⴹꓰ𐊆⋿Ⲉ", 'F': "ϜᖴꓝꞘ𐊇𐊥",
	'G': "ԌᏀᏳꓖ", 'H': "ΗНᎻᕼꓧⲎ𐋏", 'J': "ЈᎫᒍꓙͿᏗ", 'K': "ΚКᏦꓗⲔᛕ", 'L': "Ꮮᒪꓡ𐐛Ⳑ", 'M': "ΜМᎷᗰꓟⲘ𐊰𐌑ᛖϺ",
	'N': "Νꓠ𐔓Ⲛ", 'O': "ΟОՕꓳⲞ𐊒𐊫𐐄𐔖ଠ", 'P': "ΡРᏢᑭꓑⲢ𐊕", 'Q': "ⵕႭ", 'R': "ᎡᏒᖇꓣ𐒴Ʀ", 'S': "ЅՏᏕᏚꓢ𐊖𐐠",
	'T': "ΤТᎢꓔ⊤Ⲧ𐊗𐊱𐌕", 'U': "Սሀᑌꓴ∪⋃𐓎", 'V': "ѴᏙᐯꓦⴸ\u0667۷", 'W': "ԜᎳᏔꓪ", 'X': "ΧХꓫⵝ╳𐊐𐊴𐌗𐌢Ⲭᚷ", 'Y': "ΥУҮᎩᎽꓬⲨ𐊲", 'Z': "ΖᏃꓜ𐋵Ⲍ",

	'2': "ƧᒿϨꙄ", '3': "ЗзƷȜӠꝪɜэ", '4': "Ꮞᔦ", '5': "Ƽ", '6': "бᏮⳒ", '7': "𐓒", '8': "Ȣȣ৪੪𐌚", '9': "৭੭୨ꝮⳊ൭",

	'-': "‐‒–−⁃˗\u06d4➖Ⲻ﹣—―ー一─", '_': "‗\u07fa﹍﹎﹏＿ˍ", '.': "․\u0660۰\u0701\u0702\U00010a50꘎", ',': "‚\u066bꓹ\u060d¸،", ':': "ː˸∶꞉\u05c3\u0703\u0704։᛬⁚ꓽ：",
	';': "\u061b", '/': "⁄∕╱⧸⟋⁁ノ丿〳Ⳇ／", '\\': "∖⧵⧹⟍＼", '\'': "’‘′‵ʹʼˈ՚ꞌ\u05f3´‛", '"': "“”″‶ʺˮ\u05f4〃‟",
	'(': "❨❲〔﴾", ')': "❩❳〕﴿", '*': "⁎∗\u066d𐌟✱", '=': "꓿᐀゠⹀", '<': "‹❮˂ᐸᚲ", '>': "›❯˃ᐳ", '~': "∼⁓˜〜",
	'+': "᛭𐊛➕", '!': "ǃⵑ¡", '?': "Ɂʔॽꛫ", '&': "ꝸ", '^': "˄ˆ⌃", '{': "❴", '}': "❵", '@': "＠", '#': "⌗", '%': "٪⁒",
}

// plainOf is the ASCII character that a character looks like.
var plainOf = func() map[rune]rune {
	of := map[rune]rune{}
	for plain, others := range lookAlikes {
		for _, r := range others {
			of[r] = plain
		}
	}
	for n := range rune(26) { // letters in circles and squares that are no forms of letters, and those that make flags
		of[0x1f150+n], of[0x1f170+n], of[0x1f1e6+n] = 'A'+n, 'A'+n, 'A'+n
	}
	return of
}()
